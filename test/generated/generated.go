// Package generated keeps files of the checkout that are made of others. Only tests import it.
package generated

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Check reports an error when a file is not what it is made of, and names the command that writes it. With update it writes it.
func Check(t *testing.T, file, made, command string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil { //nolint:gosec // as all files of the checkout
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), made); diff != "" {
		t.Errorf("%s is not what it is made of; %s writes it (-it +made):\n%s", file, command, diff)
	}
}
