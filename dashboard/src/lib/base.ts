/** Where the server is, behind whatever proxy: this script lies in its `assets`. */
export const BASE: string = import.meta.env.PROD
  ? new URL(/* @vite-ignore */ "..", import.meta.url).pathname.replace(/\/$/, "")
  : "";

/** The address of a page of the dashboard. Names are encoded, so any task type or queue can be one. */
export function to(path: TemplateStringsArray, ...names: string[]): string {
  return BASE + String.raw({ raw: path }, ...names.map(encodeURIComponent));
}
