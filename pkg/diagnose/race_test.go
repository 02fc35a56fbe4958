//go:build race

package diagnose_test

func init() { raced = true }
