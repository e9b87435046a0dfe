import type { EventMessage } from "../api/schema";
import { BASE } from "./base";

const TOO_SLOW = 1013;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
/** How long to leave the stream alone after more happened than can be taken. */
const REST = 30_000;
/** The server says something every few seconds; silence for longer means that the line is dead. */
const SILENCE = 20_000;

export interface Wanted {
  types: string;
  task_id?: string;
}

/** One line to the event stream, which comes back by itself. */
export class Feed {
  private socket: WebSocket | null = null;
  private wait = FIRST_WAIT;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private closed = false;

  constructor(
    private readonly wanted: Wanted,
    private readonly heard: (event: EventMessage) => void,
    private readonly changed: (open: boolean) => void = () => undefined,
  ) {
    this.open();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    // One that is yet to open is closed as soon as it has: browsers complain of anything sooner.
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.close();
  }

  /** Try again now. */
  retry(): void {
    const state = this.socket?.readyState;
    if (this.closed || state === WebSocket.OPEN || state === WebSocket.CONNECTING) return;
    clearTimeout(this.timer);
    this.open();
  }

  private open(): void {
    const url = new URL(`${BASE}/ws`, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    for (const [name, value] of Object.entries(this.wanted)) url.searchParams.set(name, value);
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.onopen = () => {
      if (this.closed) return socket.close();
      this.wait = FIRST_WAIT;
      this.changed(true);
      this.listen(socket);
    };
    socket.onmessage = (message: MessageEvent<string>) => {
      this.listen(socket);
      if (!this.closed) this.heard(JSON.parse(message.data) as EventMessage);
    };
    socket.onclose = (event) => {
      if (this.closed || this.socket !== socket) return;
      clearTimeout(this.watchdog);
      this.changed(false);
      const wait = event.code === TOO_SLOW ? REST : this.wait * (0.75 + Math.random() / 2);
      this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
      this.timer = setTimeout(() => this.open(), wait);
    };
  }

  /** A line that dies without a word is noticed by its silence: ask, and hang up if nothing comes. */
  private listen(socket: WebSocket): void {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => {
      socket.send("ping");
      this.watchdog = setTimeout(() => socket.close(), SILENCE);
    }, SILENCE);
  }
}

/** Whether the dashboard hears of what happens, and since when it does not. */
class Connection {
  state = $state<"connecting" | "live" | "lost">("connecting");
  lostAt = $state<number | null>(null);
  /** Counts up whenever the line is back: what was shown before may be old. */
  recovered = $state(0);

  private feed: Feed | null = null;
  private listeners = new Set<(event: EventMessage) => void>();

  constructor() {
    addEventListener("online", () => this.retry());
  }

  start(): void {
    this.feed ??= new Feed(
      { types: "queue.*,system.metrics,worker.*,task_type.*" },
      (event) => this.listeners.forEach((listener) => listener(event)),
      (open) => (open ? this.found() : this.lost()),
    );
  }

  /** Hang up: whoever looks has yet to say who they are. */
  stop(): void {
    this.feed?.close();
    this.feed = null;
    this.state = "connecting";
    this.lostAt = null;
  }

  /** Hear of how queues and workers stand, until the answer is called. */
  hear(listener: (event: EventMessage) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  retry(): void {
    this.feed?.retry();
  }

  private found(): void {
    if (this.state === "lost") this.recovered++;
    this.state = "live";
    this.lostAt = null;
  }

  private lost(): void {
    this.state = "lost";
    this.lostAt ??= Date.now();
  }
}

export const connection = new Connection();
