//go:build !race

package diagnose_test

const raceEnabled = false
