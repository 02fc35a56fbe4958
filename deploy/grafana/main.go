// Command grafana writes the dashboards as JSON into the current directory: make dashboards.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	for file, d := range dashboards() {
		text, err := encode(d)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// dashboards returns the dashboards by the name of their file.
func dashboards() map[string]*dashboard.DashboardBuilder {
	return map[string]*dashboard.DashboardBuilder{"fleet.json": fleet(), "node.json": node(), "pod.json": pod()}
}

// encode returns a dashboard's JSON. Its panels are numbered in their order.
func encode(b *dashboard.DashboardBuilder) ([]byte, error) {
	d, err := b.Build()
	if err != nil {
		return nil, err
	}
	for i := range d.Panels {
		d.Panels[i].Panel.Id = cog.ToPtr(uint32(i + 1))
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	// encoding/json writes these as it would into HTML. No text of the dashboards has a backslash before such an escape.
	for escaped, plain := range map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"} {
		text = bytes.ReplaceAll(text, []byte(escaped), []byte(plain))
	}
	return append(text, '\n'), nil
}
