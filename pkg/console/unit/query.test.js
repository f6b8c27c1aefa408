import "./page.js";
import assert from "node:assert/strict";
import {test} from "node:test";

import {at, parse, quote, selectors, words} from "../static/query.js";

test("a query has keywords and filters", () => {
  const terms = (text) => parse(text).map((t) => (t.keyword !== undefined ? t.keyword : [t.property, t.op, ...t.values.map((v) => v.op + v.text)]));
  for (const [text, want] of [
    ["", []], ["  web  ", ["web"]], ["web-1 kind:Pod", ["web-1", ["kind", ":", "Pod"]]], ["kind:Pod,Job", [["kind", ":", "Pod", "Job"]]],
    ["name:\"a b\",'c,d'", [["name", ":", "a b", "c,d"]]], ["cpu>=4 restarts:>3", [["cpu", ">=", "4"], ["restarts", ":", ">3"]]], ["status!=Running", [["status", "!=", "Running"]]],
    ["'kind:Pod'", ["kind:Pod"]], ["a\\ b", ["a b"]], ["name:\"open", [["name", ":", "open"]]], [":x", [":x"]], ["name:", [["name", ":", ""]]],
    ["name:\"q\\\"\\\\\"", [["name", ":", "q\"\\"]]],
  ]) assert.deepEqual(terms(text), want, text);
});

test("a quoted value is read as it is", () => {
  for (const value of ["web", "", "a b", "a,b", "it's", "\"q\"", "a\\b", "web*", "!web", ">=4", "=x", "né", "a\tb"]) {
    assert.deepEqual(parse(`name:${quote(value)}`).map((t) => t.values.map((v) => [v.op, v.text, v.text === value])), [[["", value, true]]], value);
  }
  assert.equal(quote("web"), "web");
});

test("the term at the cursor is completed", () => {
  const typed = (text) => {
    const cursor = text.indexOf("|");
    const {property, prefix, word, rest} = at(text.replace("|", ""), cursor);
    return property === undefined ? [word, rest] : [property, prefix, rest];
  };
  for (const [text, want] of [
    ["|", ["", ""]], ["ki|", ["ki", ""]], ["kind:Po|", ["kind", "Po", ""]], ["web kind:Pod,J| x", ["kind", "J", "web   x"]], ["kind:Pod |", ["", "kind:Pod "]], ["kind:Pod status!=|", ["status", "", "kind:Pod"]],
  ]) assert.deepEqual(typed(text), want, text);
});

test("a watch selects what the query finds, or more", () => {
  for (const [text, kind, fields, labels, exact] of [
    ["", "", "", "", true],
    ["kind:Pod", "", "kind=Pod", "", true],
    ["status!=Running,Failed", "Pod", "kind=Pod,status!=Running,status!=Failed", "", true],
    ["name:a\\,b", "", "name=a\\,b", "", true],
    ["kind:Pod,Job", "", "", "", false],
    ["web kind:Pod", "", "kind=Pod", "", false],
    ["name:web*", "", "", "", false],
    ["restarts>3", "", "", "", false],
    ["restarts:>3", "", "", "", false],
    ["created:day", "", "", "", false],
    ["label:env=prod,env=test", "", "", "env in (prod,test)", true],
    ["label!=env=prod", "", "", "env notin (prod)", true],
    ["label:canary", "", "", "canary", true],
    ["label!=canary", "", "", "!canary", true],
    ["label:env=prod,tier=web", "", "", "", false],
    ["label:'env=a b'", "", "", "", false],
  ]) assert.deepEqual(selectors(text, kind), {fieldSelector: fields, labelSelector: labels, exact}, text);
});

test("the words of a query are those of clusteradm search", () => {
  assert.deepEqual(words("web 'a b' kind:Pod name:\"c d\""), ["web", "\"a b\"", "kind:Pod", "name:\"c d\""]);
});
