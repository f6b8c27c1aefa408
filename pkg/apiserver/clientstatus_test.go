package apiserver

import "testing"

func TestWithoutStatus(t *testing.T) {
	for body, want := range map[string]string{
		``:                      ``,
		`{"status":{"a":true}}`: `{"status":{}}`,
		` {"spec":{"status":{"a":1}},"status": {"conditions":[{"status":true}]} ,"a":1}`: ` {"spec":{"status":{"a":1}},"status": {} ,"a":1}`,
		`{"a":1,"a":2,"status":{"b":"\"}"}}`:                                             `{"a":1,"a":2,"status":{}}`,
		`{"status":null}`:                                                                `{"status":null}`,
		`{"status":"text"}`:                                                              `{"status":"text"}`,
		`{"status":{"a":`:                                                                `{"status":{"a":`,
		`[{"op":"add","path":"/status"}]`:                                                `[{"op":"add","path":"/status"}]`,
		"status:\n  a: true\n":                                                           "status:\n  a: true\n",
		`"status"`:                                                                       `"status"`,
		`{"metadata":{"name":"status"}}`:                                                 `{"metadata":{"name":"status"}}`,
		`{"metadata":{"labels":{"status":1}}`:                                            `{"metadata":{"labels":{"status":1}}`,
	} {
		if got := string(withoutStatus([]byte(body))); got != want {
			t.Errorf("withoutStatus(%s) = %s, want %s", body, got, want)
		}
	}
}
