import { BASE } from "./base";
import { routeOf, type Route } from "./routes";

/** Where the reader is. The address is the state of every page: it can be sent to somebody. */
class Router {
  route = $state<Route>(routeOf(location.pathname, BASE));
  query = $state(new URLSearchParams(location.search));

  constructor() {
    addEventListener("popstate", () => this.read());
  }

  /** Go to an address of the dashboard. */
  go(href: string, how: { replace?: boolean } = {}): void {
    if (how.replace) history.replaceState(null, "", href);
    else history.pushState(null, "", href);
    this.read();
  }

  /** Change parts of the query and stay on the page; an empty value leaves a part out. */
  amend(parts: Record<string, string | null>, how: { replace?: boolean } = {}): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(parts)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    this.go(location.pathname + (text ? `?${text}` : ""), how);
  }

  /** Follow links of the dashboard without loading the page anew. */
  follow(event: MouseEvent): void {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (
      link === null ||
      link.target !== "" ||
      link.hasAttribute("download") ||
      link.origin !== location.origin
    )
      return;
    if (routeOf(link.pathname, BASE).page === null) return;
    // A place on this page is the browser's business.
    if (link.hash !== "" && link.pathname === location.pathname && link.search === location.search) return;
    event.preventDefault();
    this.go(link.pathname + link.search + link.hash);
    scrollTo(0, 0);
  }

  private read(): void {
    const route = routeOf(location.pathname, BASE);
    if (route.page !== this.route.page || route.id !== this.route.id) this.route = route;
    if (location.search !== `?${this.query.toString()}`) this.query = new URLSearchParams(location.search);
  }
}

export const router = new Router();
