/** What a refusal says. */

export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail: string;
  remedy?: string;
  pointer?: string;
}
