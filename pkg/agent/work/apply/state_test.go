package apply

import (
	"testing"
	"time"
)

func TestHoldBack(t *testing.T) {
	now := time.Unix(1000, 0)
	state := &State{}
	repair := func() error {
		err := state.holdBack(now)
		if err == nil {
			state.repaired(now)
		}
		return err
	}
	for range 100 {
		if err := repair(); err != nil {
			t.Fatal("holdBack() before the first apply returned an error, want nil")
		}
	}
	state.Applied = true
	writes := 0
	for range 10 * 60 * 20 {
		if repair() == nil {
			writes++
		}
		now = now.Add(50 * time.Millisecond)
	}
	if writes < freeRepairs || writes > freeRepairs+15 {
		t.Errorf("writes in ten minutes of conflict = %d, want %d to %d", writes, freeRepairs, freeRepairs+15)
	}
	writes = 0
	for range 60 * 60 {
		if repair() == nil {
			writes++
		}
		now = now.Add(time.Second)
	}
	if writes < 11 || writes > 13 {
		t.Errorf("writes in the next hour of conflict = %d, want one in five minutes", writes)
	}
	now = now.Add(2*maxRepairDelay + repairMemory + time.Second)
	for i := range freeRepairs {
		if err := repair(); err != nil {
			t.Errorf("holdBack() of repair %d after a long time without conflict = %v, want nil", i, err)
		}
	}
}
