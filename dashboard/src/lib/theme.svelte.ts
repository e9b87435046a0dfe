const KEPT = "fairlead-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** Light or dark: what the system says, unless the reader said otherwise here. */
class Theme {
  chosen = $state<string | null>(null);
  private systemDark = $state(system.matches);

  constructor() {
    this.choose(recall());
    system.addEventListener("change", () => (this.systemDark = system.matches));
  }

  get dark(): boolean {
    return this.chosen === null ? this.systemDark : this.chosen === "dark";
  }

  /** Change to the other one; back to what the system says if that is it. */
  toggle(): void {
    const wanted = this.dark ? "light" : "dark";
    this.choose(wanted === (this.systemDark ? "dark" : "light") ? null : wanted);
  }

  private choose(word: string | null): void {
    this.chosen = word;
    if (word === null) delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = word;
    try {
      if (word === null) localStorage.removeItem(KEPT);
      else localStorage.setItem(KEPT, word);
    } catch {
      // A browser that keeps nothing shows what the system says the next time.
    }
  }
}

function recall(): string | null {
  try {
    const word = localStorage.getItem(KEPT);
    return word === "light" || word === "dark" ? word : null;
  } catch {
    return null;
  }
}

export const theme = new Theme();
