import { BASE } from "../lib/base";
import type { Endpoints, Problem as ProblemDocument } from "./schema";

type Endpoint = keyof Endpoints;
type Request<E extends Endpoint> = Endpoints[E]["request"];
type Answer<E extends Endpoint> = Endpoints[E]["answer"];

/** The parts that a request may have, whatever the endpoint. */
interface Parts {
  path?: Record<string, string>;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
}

/** A request that was refused or could not be made, with the server's own words where it has some. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly document: ProblemDocument,
  ) {
    super(document.detail);
  }

  get unreachable(): boolean {
    return this.status === 0;
  }
}

const UNREACHABLE: ProblemDocument = {
  type: "unreachable",
  title: "Cannot reach the server",
  status: 0,
  detail: "The server did not answer. This page retries automatically.",
};

let csrfToken: string | null = null;

/** Have all requests that change something carry this token. */
export function useCsrfToken(token: string | null): void {
  csrfToken = token;
}

/** What an endpoint answers; raises Problem. */
export async function call<E extends Endpoint>(
  endpoint: E,
  request: Request<E>,
  signal?: AbortSignal,
): Promise<Answer<E>> {
  const text = await callForText(endpoint, request, signal);
  return (text === "" ? undefined : JSON.parse(text)) as Answer<E>;
}

/** What an endpoint answers, exactly as it is written; raises Problem. */
export async function callForText<E extends Endpoint>(
  endpoint: E,
  request: Request<E>,
  signal?: AbortSignal,
): Promise<string> {
  const { path, query, body }: Parts = request;
  const [method = "", template = ""] = endpoint.split(" ");
  const headers: Record<string, string> = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrfToken !== null) headers["x-csrf-token"] = csrfToken;
  let response: Response;
  let text: string;
  try {
    response = await fetch(BASE + addressOf(template, path, query), {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      credentials: "same-origin",
      signal: signal ?? null,
    });
    text = await response.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, UNREACHABLE);
  }
  if (!response.ok) throw new Problem(response.status, documentOf(response, text));
  return text;
}

function documentOf(response: Response, text: string): ProblemDocument {
  try {
    const parsed = JSON.parse(text) as Partial<ProblemDocument>;
    if (typeof parsed.detail === "string") return parsed as ProblemDocument;
  } catch {
    // A proxy may answer with a page of its own.
  }
  const detail = `The server answered ${response.status} ${response.statusText} without an explanation.`;
  return { type: "unknown", title: response.statusText, status: response.status, detail };
}

/** A path with its variables filled in, and with the parameters that are not empty. */
export function addressOf(template: string, path: Parts["path"] = {}, query: Parts["query"] = {}): string {
  const filled = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(path[name] ?? ""));
  const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${filled}?${text}` : filled;
}
