import { BASE } from "../lib/base";
import type { ProblemDocument } from "./types/problems";

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
  title: "The server cannot be reached",
  status: 0,
  detail: "The server cannot be reached. This page tries again by itself.",
};

let csrfToken: string | null = null;

/** Have all requests that change something carry this token. */
export function useCsrfToken(token: string | null): void {
  csrfToken = token;
}

/** The body of an answer, as text; raises Problem. */
export async function ask(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<string> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrfToken !== null) headers["x-csrf-token"] = csrfToken;
  let response: Response;
  let text: string;
  try {
    response = await fetch(BASE + path, {
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

/** The body of an answer that is JSON of a known shape. */
export async function askJson<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  return JSON.parse(await ask(method, path, body, signal)) as T;
}

function documentOf(response: Response, text: string): ProblemDocument {
  try {
    const parsed = JSON.parse(text) as Partial<ProblemDocument>;
    if (typeof parsed.detail === "string") return parsed as ProblemDocument;
  } catch {
    // A proxy may answer with a page of its own.
  }
  const detail = `The answer was ${response.status} ${response.statusText}, without an explanation.`;
  return { type: "unknown", title: response.statusText, status: response.status, detail };
}

/** A path with the parameters that are not empty. */
export function withQuery(path: string, query: Record<string, string | number | null | undefined>): string {
  const said = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}
