//go:build !linux

package main

import (
	"context"
	"errors"
)

func runNodes(context.Context, []string) error { return errors.New("NODES=real requires Linux") }
