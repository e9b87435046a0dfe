/** Editing a query, without understanding more of it than where its terms begin and end. */

export interface Term {
  negated: boolean;
  /** Empty for a text that is looked for anywhere. */
  field: string;
  value: string;
}

const TERM = /(-?)(?:([a-z_]+(?:\.[^\s:"]+)?):)?((?:"(?:[^"\\]|\\.)*"|[^\s"])+)/gy;

/** The terms of a query, as far as it can be read. */
export function termsOf(query: string): Term[] {
  const terms: Term[] = [];
  for (const chunk of query.matchAll(/(?:"(?:[^"\\]|\\.)*"|[^\s"]|"[^"]*$)+/g)) {
    TERM.lastIndex = 0;
    const match = TERM.exec(chunk[0]);
    if (match !== null && match[0].length === chunk[0].length) {
      terms.push({ negated: match[1] === "-", field: match[2] ?? "", value: match[3] ?? "" });
    } else {
      terms.push({ negated: false, field: "", value: chunk[0] });
    }
  }
  return terms;
}

export function queryOf(terms: Term[]): string {
  return terms
    .map(({ negated, field, value }) => `${negated ? "-" : ""}${field ? `${field}:` : ""}${value}`)
    .join(" ");
}

/** The values that a query asks a field to have. */
export function valuesOf(query: string, field: string): string[] {
  return termsOf(query)
    .filter((term) => term.field === field && !term.negated)
    .flatMap((term) => term.value.split(","));
}

/** The query with a field asked for like this; with an empty value, not asked for at all. */
export function withTerm(query: string, field: string, value: string): string {
  const terms = termsOf(query);
  const place = terms.findIndex((term) => term.field === field && !term.negated);
  const others = terms.filter((term) => term.field !== field || term.negated);
  if (value !== "") others.splice(place < 0 ? others.length : place, 0, { negated: false, field, value });
  return queryOf(others);
}

/** A value as it is written in a query. */
export function quoted(value: string): string {
  return /^[A-Za-z0-9_.:-]+$/.test(value) ? value : `"${value.replace(/[\\"]/g, "\\$&")}"`;
}

/** The query that means these tasks. */
export function idQuery(ids: string[]): string {
  return `id:${ids.join(",")}`;
}
