package validate

import "testing"

func TestLooksLikeList(t *testing.T) {
	for name, want := range map[string]bool{
		"alice": false, "system:serviceaccount:ops:agent": false, `team "blue"`: false, "CN=ops,OU=teams,DC=example,DC=com": false,
		`CN=Doe\, Jane,OU=teams`: false, "x=y": false, `Doe\, Jane`: false,
		"alice,bob": true, "system:serviceaccount:a:b,system:serviceaccount:c:d": true, "Europe, ops": true, "CN=ops,OU=teams,bob": true, "alice,": true,
		`"CN=ops,OU=teams"`: true, `"alice","bob"`: true,
	} {
		if got := LooksLikeList(name); got != want {
			t.Errorf("LooksLikeList(%q) = %t, want %t", name, got, want)
		}
		if errs := FlagUsers("flag", []string{"alice", name}); (len(errs) > 0) != want {
			t.Errorf("FlagUsers(alice, %q) = %v, want an error: %t", name, errs, want)
		}
	}
}
