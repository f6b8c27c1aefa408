package seed

import "testing"

func TestOf(t *testing.T) {
	t.Setenv(variable, "0x10")
	hex := Of(t)
	t.Setenv(variable, "16")
	if decimal := Of(t); decimal != hex {
		t.Errorf("Of() with 16 = %d, want %d as with 0x10", decimal, hex)
	}
	t.Setenv(variable, "17")
	if other := Of(t); other == hex {
		t.Errorf("Of() with 17 = %d, want another seed than with 16", other)
	}
	t.Setenv(variable, "")
	first := Of(t)
	t.Run("another name", func(t *testing.T) {
		if other := Of(t); other == first {
			t.Errorf("Of() = %d, want another seed than the parent", other)
		}
	})
}

func TestCommand(t *testing.T) {
	if got, want := command(t, "7"), "TEST_SEED=7 make integration PKG=seed RUN=TestCommand"; got != want {
		t.Errorf("command() = %s, want %s", got, want)
	}
	t.Chdir("../../pkg/rbac")
	if got, want := command(t, "7"), "TEST_SEED=7 go test -run '^TestCommand$' ./pkg/rbac"; got != want {
		t.Errorf("command() = %s, want %s", got, want)
	}
}
