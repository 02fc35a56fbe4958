package main

import (
	"context"
	"fmt"
	"os"
)

// maxImage is 40 MB in decimal, as registries count.
const maxImage = 40_000_000

func size(context.Context) ([]row, error) {
	image, err := os.Stat(file("bin", "nodeagent-image.tar"))
	if err != nil {
		return nil, fmt.Errorf("the agent's image: %w; make image builds it", err)
	}
	binary, err := os.Stat(file("bin", "nodeagent"))
	if err != nil {
		return nil, fmt.Errorf("the agent's binary: %w; make build builds it", err)
	}
	return []row{
		{"Image, not compressed", "≤40 MB", megabytes(image.Size()), image.Size() <= maxImage},
		{what: "Binary", measured: megabytes(binary.Size())},
	}, nil
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
