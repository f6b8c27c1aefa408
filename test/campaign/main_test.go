package campaign

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
