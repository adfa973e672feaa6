package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/routing-operator/routing-operator/internal/buildinfo"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, which is the operator's that it was built with",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.Out, buildinfo.Version())
			return err
		},
	}
}
