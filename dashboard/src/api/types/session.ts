/** Who is logged in, and what they may do. */

export type Role = "submit" | "read" | "work" | "admin";

export interface Session {
  name: string | null;
  roles: Role[];
  tenant: string | null;
  key_needed: boolean;
  csrf_token: string | null;
}
