package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/options"
)

const (
	// snapshotTimeout is the default of --timeout. A disk writes 8 GiB in this time.
	snapshotTimeout = 10 * time.Minute
	standardOutput  = "-"

	outputTable = "table"
	outputJSON  = "json"
)

// snapshotFlags are the flags of the snapshot commands.
type snapshotFlags struct {
	dataDir, prefix, output string
	timeout                 time.Duration
	overwrite, replace      bool
}

func newSnapshot() *cobra.Command {
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "Save and restore the data of the embedded etcd",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	// The help of the server lists its flags, which do not apply here.
	plain := &cobra.Command{}
	command.SetUsageFunc(plain.UsageFunc())
	command.SetHelpFunc(plain.HelpFunc())
	f := &snapshotFlags{}
	command.AddCommand(f.save(), f.status(), f.restore())
	return command
}

func (f *snapshotFlags) command(use, short, long string, run func(ctx context.Context, command *cobra.Command, file string) error) *cobra.Command {
	command := &cobra.Command{
		Use: use + " FILE", Short: short, Long: long, Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(command *cobra.Command, args []string) error {
			if f.output != outputTable && f.output != outputJSON {
				return fmt.Errorf("--output must be %s or %s, not %q", outputTable, outputJSON, f.output)
			}
			ctx := command.Context()
			if f.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not finished within --timeout=%s", f.timeout))
				defer cancel()
			}
			err := run(ctx, command, args[0])
			if cause := context.Cause(ctx); err != nil && cause != nil {
				return fmt.Errorf("%w: %w", cause, err)
			}
			return err
		},
	}
	command.Flags().StringVarP(&f.output, "output", "o", outputTable, "Format of the report: table or json.")
	return command
}

func (f *snapshotFlags) addCommon(command *cobra.Command) {
	command.Flags().StringVar(&f.dataDir, "data-dir", options.DefaultDataDir, "Directory for the data of the embedded etcd.")
	command.Flags().DurationVar(&f.timeout, "timeout", snapshotTimeout, "Maximum duration. 0 means no limit.")
}

func (f *snapshotFlags) save() *cobra.Command {
	command := f.command("save", "Save a snapshot of the embedded etcd", `Save a consistent snapshot of the embedded etcd to FILE, or to the standard output if FILE is -.

The server may serve at the same time: run the command as its user on the same machine, or in its
container. If no server runs on --data-dir, the command opens the data itself.

The file appears under its name when it is complete and on disk. It contains Secrets: keep it as you
keep those.`,
		func(ctx context.Context, command *cobra.Command, file string) error {
			if file == standardOutput {
				return etcd.StreamSnapshot(ctx, f.dataDir, command.OutOrStdout())
			}
			status, err := etcd.SaveSnapshot(ctx, f.dataDir, file, f.overwrite)
			if err != nil {
				return err
			}
			return f.report(command.OutOrStdout(), status)
		})
	f.addCommon(command)
	command.Flags().BoolVar(&f.overwrite, "overwrite", false, "Replace FILE if it exists.")
	return command
}

func (f *snapshotFlags) status() *cobra.Command {
	return f.command("status", "Check and describe a snapshot", `Check the hash and the database of the snapshot FILE, and describe it.`,
		func(_ context.Context, command *cobra.Command, file string) error {
			status, err := etcd.ReadSnapshot(file)
			if err != nil {
				return err
			}
			return f.report(command.OutOrStdout(), status)
		})
}

func (f *snapshotFlags) restore() *cobra.Command {
	command := f.command("restore", "Restore a snapshot into a data directory", `Restore the snapshot FILE into --data-dir. No server may run on the directory.

Agents keep objects that the snapshot does not contain until an administrator confirms the restore with
"clusteradm restore confirm".`,
		func(ctx context.Context, command *cobra.Command, file string) error {
			mark, err := etcd.RestoreSnapshot(ctx, etcd.RestoreOptions{File: file, DataDir: f.dataDir, Prefix: f.prefix, Replace: f.replace})
			if err != nil {
				return err
			}
			if f.output == outputJSON {
				return json.NewEncoder(command.OutOrStdout()).Encode(mark)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "Restored revision %d into %s. ID of the restore: %s\n"+
				"Start the server. Then list with \"clusteradm restore list\" what agents keep, and confirm with \"clusteradm restore confirm\".\n",
				mark.Revision, f.dataDir, mark.ID)
			return err
		})
	f.addCommon(command)
	command.Flags().StringVar(&f.prefix, "etcd-prefix", options.EtcdPathPrefix, "Prefix of the keys of the server, as in the flag of the server.")
	command.Flags().BoolVar(&f.replace, "replace", false, "Replace data in --data-dir. They are moved to the directory replaced-<time> in --data-dir.")
	return command
}

func (f *snapshotFlags) report(out io.Writer, status *etcd.SnapshotStatus) error {
	if f.output == outputJSON {
		return json.NewEncoder(out).Encode(status)
	}
	_, err := fmt.Fprintf(out, "REVISION   %d\nKEYS       %d\nSIZE       %d bytes\nSHA-256    %s\nETCD       %s\n",
		status.Revision, status.Keys, status.SizeBytes, status.SHA256, status.EtcdVersion)
	return err
}
