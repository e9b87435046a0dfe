import { describe, expect, it } from "vitest";
import { idQuery, quoted, queryOf, termsOf, valuesOf, withTerm } from "./query";

describe("a query", () => {
  it("falls into terms, quotes kept whole", () => {
    const query =
      'state:dead_letter,failed -tag:eu error:"not found, sorry" params.user.id:42 "free text" word';
    expect(termsOf(query).map((term) => term.field)).toEqual([
      "state",
      "tag",
      "error",
      "params.user.id",
      "",
      "",
    ]);
    expect(queryOf(termsOf(query))).toBe(query);
  });

  it("survives being half written", () => {
    for (const query of ["", "  ", "state:", 'error:"half', "-", ":", '"', "a:b:c"]) {
      expect(typeof queryOf(termsOf(query))).toBe("string");
    }
    expect(queryOf(termsOf('queue:a error:"half writ'))).toBe('queue:a error:"half writ');
  });

  it("says which values a field has", () => {
    expect(valuesOf("state:queued,executing -state:failed", "state")).toEqual(["queued", "executing"]);
  });

  it("changes one field and leaves the others where they are", () => {
    expect(withTerm("state:queued queue:mail word", "state", "failed")).toBe("state:failed queue:mail word");
    expect(withTerm("queue:mail", "state", "failed")).toBe("queue:mail state:failed");
    expect(withTerm("state:queued queue:mail", "state", "")).toBe("queue:mail");
    expect(withTerm("-state:queued", "state", "failed")).toBe("-state:queued state:failed");
  });

  it("quotes what needs it", () => {
    expect(quoted("send_mail")).toBe("send_mail");
    expect(quoted('say "hi, there" \\')).toBe('"say \\"hi, there\\" \\\\"');
    expect(idQuery(["a", "b"])).toBe("id:a,b");
  });
});
