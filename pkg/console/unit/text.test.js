import "./page.js";
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {test} from "node:test";

import {age, cut, indexOfByte, isTime, number, operands, plain, plural, shell, visible} from "../static/text.js";
import {Text, label, maxCell} from "../static/view.js";

test("invisible characters are shown as escapes", () => {
  for (const [text, want] of [
    ["web-1", "web-1"], ["a\u202eb", "a\\u202eb"], ["\x1b[31m", "\\u001b[31m"], ["a\nb\tc\r", "a\\nb\\tc\\r"], ["\u{e0001}", "\\U000e0001"], ["né 東京 🚀", "né 東京 🚀"],
    ["\ud800", "\\ud800"],
  ]) assert.equal(visible(text), want, JSON.stringify(text));
});

test("tables show the first 100 characters of a value", () => {
  const long = "x".repeat(150);
  assert.equal(maxCell, 100);
  assert.equal(label(long), "x".repeat(100));
  assert.deepEqual(Text({text: long, max: maxCell}).props.children, ["x".repeat(100), "…"]);
  assert.deepEqual(Text({text: "x".repeat(100), max: maxCell}).props.children, ["x".repeat(100), false]);
  assert.deepEqual(cut("🚀🚀", 3), ["🚀", true], "a character is not cut into halves");
});

test("values of properties are texts", () => {
  for (const [value, want] of [
    [null, ""], [undefined, ""], [0, "0"], [false, "false"], [["a", ["b"]], "a, b"], [{env: "prod", canary: ""}, "env=prod, canary"],
  ]) assert.equal(plain(value), want);
  assert.equal(number(1234567), "1,234,567");
  assert.equal(plural(1, "rule"), "1 rule");
  assert.equal(plural(1000, "rule"), "1,000 rules");
});

test("ages are those of kubectl", () => {
  const now = Date.parse("2026-06-01T00:00:00Z");
  const ago = (seconds) => age(new Date(now - seconds * 1000).toISOString(), now);
  for (const [seconds, want] of [[-5, "0s"], [119, "119s"], [120, "2m"], [7199, "119m"], [7200, "2h"], [2 * 86400, "2d"], [729 * 86400, "729d"], [730 * 86400, "2y"]]) assert.equal(ago(seconds), want, `${seconds} s`);
  assert.equal(age("yesterday", now), "");
  assert.equal(age(7, now), "");
  assert.ok(isTime("2026-06-01T00:00:00Z"));
  assert.ok(!isTime("2026-06-01") && !isTime("2026-99-01T00:00:00Z") && !isTime(20260601));
});

// argv returns the words that a shell passes to a command.
const argv = (text) => execFileSync("bash", ["-c", `printf '%s\\0' ${text}`], {env: {...process.env, LC_ALL: "C.UTF-8"}}).toString().split("\0").slice(0, -1);

test("a word of a command is one word of the shell, and not more", () => {
  const words = ["", "web-1", "a b", "it's", "$(reboot)", "`reboot`", "a;b&c|d", "\\", "\\'", "*", "~", "!1", "#", "\"", "a\nreboot\n", "\x1b]0;title\x07", "a\u202eb", "\u{e0001}'\\", "né 東京", "-x", "--", "a=b", "{a,b}", "<x>"];
  for (const word of words) {
    assert.deepEqual(argv(shell(word)), [word], JSON.stringify(word));
    assert.equal(visible(shell(word)), shell(word), `no control character in the command for ${JSON.stringify(word)}`);
  }
  assert.deepEqual(argv(words.map(shell).join(" ")), words);
});

test("-- precedes operands that would be options", () => {
  assert.equal(operands(["pod", "web"]), "pod web");
  assert.equal(operands(["pod", "-o=x y"]), "-- pod '-o=x y'");
});

test("the position of an error is that of a character", () => {
  for (const [text, offset, want] of [["abc", 1, 1], ["éa", 2, 1], ["東a", 3, 1], ["🚀a", 4, 2], ["a", 9, 1], ["", 0, 0]]) assert.equal(indexOfByte(text, offset), want, `${text} at ${offset}`);
});
