package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	style "github.com/nodeagent-io/nodeagent/test/plain"
)

// The help of commands and flags is in plain words and short sentences.
func TestPlainHelp(t *testing.T) {
	checked := 0
	check := func(of, text string) {
		checked++
		if err := style.Check(text); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		check(c.Name(), c.Short)
		check(c.Name(), c.Long)
		c.Flags().VisitAll(func(f *pflag.Flag) { check(c.Name()+" --"+f.Name, f.Usage) })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root())
	if checked < 30 {
		t.Errorf("only %d texts", checked)
	}
}
