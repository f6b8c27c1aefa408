// Package rehoming_test moves real and simulated clusters from one hub to another.
package rehoming_test

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
