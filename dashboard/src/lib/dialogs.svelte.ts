import { Problem } from "../api/client";

/** A question that must be answered before something is done. */
export interface Question {
  title: string;
  /** What will happen, in sentences. */
  text: string[];
  /** The word on the button, such as `Discard 12 tasks`. */
  verb: string;
  danger?: boolean;
  /** What has to be typed first, where a mistake would cost much. */
  typed?: string;
}

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
  href: string | null;
}

const TOAST_LASTS = 8000;

class Dialogs {
  question = $state<Question | null>(null);
  toasts = $state<Toast[]>([]);
  private answer: ((yes: boolean) => void) | null = null;
  private toastNumber = 0;

  /** Ask, and wait for the answer. */
  ask(question: Question): Promise<boolean> {
    this.settle(false);
    this.question = question;
    return new Promise((resolve) => (this.answer = resolve));
  }

  settle(yes: boolean): void {
    this.question = null;
    this.answer?.(yes);
    this.answer = null;
  }

  /** Say something in passing. */
  tell(text: string, more: { bad?: boolean; href?: string } = {}): void {
    const id = ++this.toastNumber;
    this.toasts.push({ id, text, bad: more.bad ?? false, href: more.href ?? null });
    setTimeout(() => this.dismiss(id), TOAST_LASTS);
  }

  dismiss(id: number): void {
    this.toasts = this.toasts.filter((toast) => toast.id !== id);
  }

  /** Do something for the reader, and say so if it fails. Whether it went well. */
  async attempt(deed: () => Promise<unknown>, done?: string): Promise<boolean> {
    try {
      await deed();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.tell(error.message, { bad: true });
      return false;
    }
    if (done) this.tell(done);
    return true;
  }
}

export const dialogs = new Dialogs();
