package program

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// Where a program runs.
const (
	Deploy   = "deploy"
	External = "external"
)

// DefaultTimeout is the default of --timeout.
const DefaultTimeout = 5 * time.Minute

// Options are the flags of commands that install a program or change an installed one.
type Options struct {
	DryRun, Reset, Wait bool
	// Upgrade is true if only the image changes.
	Upgrade bool
	Timeout time.Duration
	// Current is the image that stays unless flags name another one, or empty.
	Current string

	yes   bool
	flags *pflag.FlagSet
}

// AddFlags adds the flags of an installation or, for Upgrade, of an upgrade.
func (o *Options) AddFlags(flags *pflag.FlagSet, program, wait string) {
	o.flags = flags
	flags.BoolVar(&o.Wait, "wait", false, wait)
	flags.DurationVar(&o.Timeout, "timeout", DefaultTimeout, "Maximum duration of the command.")
	flags.BoolVar(&o.DryRun, "dry-run", false, "Print what would change as unified diffs, and change nothing.")
	flags.BoolVar(&o.yes, "yes", false, "Make changes that require a confirmation.")
	if !o.Upgrade {
		flags.BoolVar(&o.Reset, "reset", false, "Return all settings of an installed "+program+" that no flag names to their defaults. Without --reset, they stay as they are.")
	}
}

// Given reports whether the command line contains one of the flags.
func (o *Options) Given(names ...string) bool { return slices.ContainsFunc(names, o.flags.Changed) }

// Choose sets the image of a program. An upgrade selects the release of this command, unless flags name another image.
func (o *Options) Choose(images *Images, name string) (err error) {
	if o.Upgrade && images.Image == "" {
		images.Version = cmp.Or(images.Version, version.Short())
	}
	images.Image, err = images.Of(name, o.Current, version.Short())
	return err
}

// Confirm prints the changes of a dry run. It returns an error for the reasons, and for changes that take fields from others.
func (o *Options) Confirm(env cli.Environment, changes []manifests.Change, reasons []string) error {
	if o.DryRun {
		if err := manifests.WriteDiff(env.Out, changes); err != nil {
			return err
		}
	}
	reasons = append(reasons, o.foreign(changes)...)
	list := strings.Join(reasons, "\n  - ")
	switch {
	case len(reasons) == 0 || o.yes && !o.DryRun:
		return nil
	case o.DryRun:
		_, err := fmt.Fprintf(env.ErrOut, "Requires --yes:\n  - %s\n", list)
		return err
	}
	return fmt.Errorf("nothing was changed: the following requires --yes. --dry-run prints all changes.\n  - %s", list)
}

// kept is the end of the fields that an installation keeps, or that its flags change. Other managers may have set them.
var kept = []string{
	`.spec.replicas`, `.spec.resources.requests.storage`, `.data.` + manifests.KubeconfigKey,
	`.containers[name="` + ServerContainer + `"].args`, `.containers[name="` + ServerContainer + `"].image`,
	`.containers[name="` + manifests.AgentName + `"].args`, `.containers[name="` + manifests.AgentName + `"].image`,
}

// ServerContainer is the name of the container of the server.
const ServerContainer = "apiserver"

// foreign returns the fields that the changes take from others.
func (o *Options) foreign(changes []manifests.Change) []string {
	var reasons []string
	for _, c := range changes {
		for _, conflict := range c.Conflicts {
			field, _, _ := strings.Cut(conflict, ": ")
			if !o.Reset && (slices.ContainsFunc(kept, func(end string) bool { return strings.HasSuffix(field, end) }) || strings.Contains(field, `"].resources.`)) {
				continue
			}
			reasons = append(reasons, manifests.Display(c.Manifest)+": "+conflict)
		}
	}
	return reasons
}
