// Command hostile is the program of `make hostile`. It sends generated hostile input to a hub
// and an agent, and fails if an input exceeds the bound. test/hostile documents the
// environment variables.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"open-cluster-management.io/hub-apiserver/test/hostile"
)

func main() {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nhostile: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	options := hostile.Options{Seed: uint64(time.Now().UnixNano()), Inputs: 4, Out: os.Stdout}
	if text := os.Getenv("HOSTILE_SEED"); text != "" {
		if options.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("HOSTILE_SEED: %w", err)
		}
	}
	if text := os.Getenv("HOSTILE_INPUTS"); text != "" {
		if options.Inputs, err = strconv.Atoi(text); err != nil || options.Inputs < 1 {
			return fmt.Errorf("HOSTILE_INPUTS=%s: want a number, 1 or more", text)
		}
	}
	if text := os.Getenv("HOSTILE_MINUTES"); text != "" {
		minutes, err := strconv.Atoi(text)
		if err != nil || minutes < 1 {
			return fmt.Errorf("HOSTILE_MINUTES=%s: want a number, 1 or more", text)
		}
		options.Deadline = time.Now().Add(time.Duration(minutes) * time.Minute)
	}
	if text := os.Getenv("HOSTILE_ONLY"); text != "" {
		if options.Only, err = regexp.Compile(text); err != nil {
			return fmt.Errorf("HOSTILE_ONLY: %w", err)
		}
	}
	if text := os.Getenv("HOSTILE_REPEAT"); text != "" {
		repeat, err := hostile.ParseCase(text)
		if err != nil {
			return fmt.Errorf("HOSTILE_REPEAT: %w", err)
		}
		options.Repeat = &repeat
	}
	dir := os.Getenv("KEEP")
	if dir == "" {
		if dir, err = os.MkdirTemp("", "hostile-"); err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }()
	}
	site, err := hostile.NewSite(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Stop()) }()
	return hostile.Campaign(ctx, site, options)
}
