import * as api from "../api/calls";
import { Problem, useCsrfToken } from "../api/client";
import type { Role, SessionShown } from "../api/schema";

/** Who looks at the dashboard, and what they may do. */
class Viewer {
  session = $state<SessionShown | null>(null);
  problem = $state<Problem | null>(null);

  /** Ask the server who this is. */
  async refresh(): Promise<void> {
    try {
      this.take(await api.showSession());
      this.problem = null;
    } catch (error) {
      if (error instanceof Problem) this.problem = error;
    }
  }

  async logIn(key: string): Promise<void> {
    this.take(await api.logIn(key));
  }

  async logOut(): Promise<void> {
    await api.logOut();
    useCsrfToken(null);
    await this.refresh();
  }

  may(role: Role): boolean {
    const roles = this.session?.roles ?? [];
    return roles.includes(role) || roles.includes("admin");
  }

  private take(session: SessionShown): void {
    useCsrfToken(session.csrf_token);
    this.session = session;
  }
}

export const viewer = new Viewer();
