/** JSON kept as it was written: digits, order and repeated keys survive, which `JSON.parse` would not promise. */

export type JsonNode =
  | { kind: "object"; entries: [key: string, value: JsonNode][] }
  | { kind: "array"; items: JsonNode[] }
  | { kind: "string"; value: string }
  | { kind: "number"; text: string }
  | { kind: "literal"; text: string };

const SPACE = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;
/** Deeper than this nobody reads, and a browser's stack ends somewhere. */
const DEEPEST = 500;

/** Parse a text; raises SyntaxError. */
export function parseJson(text: string): JsonNode {
  const reader = new Reader(text);
  const node = reader.value(0);
  reader.end();
  return node;
}

class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  value(depth: number): JsonNode {
    if (depth > DEEPEST) throw new SyntaxError(`nested deeper than ${DEEPEST}`);
    this.match(SPACE);
    switch (this.text[this.at]) {
      case "{":
        return { kind: "object", entries: this.list("{", "}", () => this.entry(depth)) };
      case "[":
        return { kind: "array", items: this.list("[", "]", () => this.value(depth + 1)) };
      case '"':
        return { kind: "string", value: this.string() };
    }
    const number = this.match(NUMBER);
    if (number !== null) return { kind: "number", text: number };
    const literal = this.match(LITERAL);
    if (literal !== null) return { kind: "literal", text: literal };
    throw this.unexpected();
  }

  end(): void {
    this.match(SPACE);
    if (this.at < this.text.length) throw this.unexpected();
  }

  private entry(depth: number): [string, JsonNode] {
    this.match(SPACE);
    const key = this.string();
    this.match(SPACE);
    this.expect(":");
    return [key, this.value(depth + 1)];
  }

  private list<T>(opening: string, closing: string, item: () => T): T[] {
    const items: T[] = [];
    this.expect(opening);
    this.match(SPACE);
    if (this.text[this.at] !== closing) {
      for (;;) {
        items.push(item());
        this.match(SPACE);
        if (this.text[this.at] !== ",") break;
        this.at++;
      }
    }
    this.expect(closing);
    return items;
  }

  private string(): string {
    const written = this.match(STRING);
    if (written === null) throw this.unexpected();
    return JSON.parse(written) as string;
  }

  private match(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? null;
    if (found !== null) this.at += found.length;
    return found;
  }

  private expect(sign: string): void {
    if (this.text[this.at] !== sign) throw this.unexpected();
    this.at++;
  }

  private unexpected(): SyntaxError {
    return new SyntaxError(`unexpected ${this.text[this.at] ?? "end"} at ${this.at}`);
  }
}

/** The text of a tree, indented for people. */
export function textOf(node: JsonNode, indent = ""): string {
  const deeper = `${indent}  `;
  switch (node.kind) {
    case "string":
      return JSON.stringify(node.value);
    case "number":
    case "literal":
      return node.text;
    case "array":
      return wrap(
        "[",
        "]",
        node.items.map((item) => textOf(item, deeper)),
        indent,
      );
    case "object":
      return wrap(
        "{",
        "}",
        node.entries.map(([key, value]) => `${JSON.stringify(key)}: ${textOf(value, deeper)}`),
        indent,
      );
  }
}

function wrap(opening: string, closing: string, parts: string[], indent: string): string {
  if (parts.length === 0) return opening + closing;
  return `${opening}\n${parts.map((part) => `${indent}  ${part}`).join(",\n")}\n${indent}${closing}`;
}

/** Whether there is nothing in it to show. */
export function isNothing(node: JsonNode): boolean {
  return node.kind === "literal" && node.text === "null";
}
