// Matrix runs all incidents, on both versions of control groups and on an older and a newer
// kernel: `make matrix`. It keeps the table in docs/matrix.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

func main() {
	part := flag.String("part", "", "one part of the rows, such as 1/4")
	resume := flag.Bool("resume", false, "leave out the rows that are green on this commit")
	age := flag.Bool("age", false, "only say how old docs/matrix.md is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := func() error { return run(ctx, *part, *resume) }
	if *age {
		do = func() error { return printAge(ctx) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "make matrix:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, part string, resume bool) error {
	all := rows()
	mine, err := cut(all, part)
	if err != nil {
		return err
	}
	commit, err := bed.Commit(ctx)
	if err != nil {
		return err
	}
	dirty := strings.HasSuffix(commit, "-dirty")
	if dirty && resume {
		return errors.New("RESUME=1 goes by the commit, and something is not committed: commit it first, or run without RESUME")
	}
	var failed []error
	for i, p := range phases {
		some := slices.DeleteFunc(slices.Clone(mine), func(r row) bool { return r.phase != i })
		if resume {
			green, err := bed.ReadResults(folder(i))
			if err != nil {
				return err
			}
			green = green.Green(commit)
			some = slices.DeleteFunc(some, func(r row) bool { return len(of(green, r.name)) >= r.results })
		}
		if len(some) == 0 {
			continue
		}
		fmt.Printf("\n%s: %d incidents and checks on %s\n", p.name, len(some), strings.Join(p.nodes, " "))
		if err := p.run(ctx, folder(i), names(some), resume); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			failed = append(failed, errors.New("cut off; RESUME=1 goes on"))
			break
		}
	}
	t, err := read(all, commit)
	if err != nil {
		return err
	}
	fmt.Print(t.rows(), "\n")
	switch {
	case dirty:
		fmt.Println("docs/matrix.md is left as it is: something is not committed.")
	case len(t.missing) > 0:
		if err := os.WriteFile(filepath.Join(bed.Root(), partly), []byte(t.markdown()), 0o644); err != nil {
			return err
		}
		fmt.Printf("%s has the rows that have run, and docs/matrix.md is left as it is: %d rows have not run on this commit, such as %s.\n",
			partly, len(t.missing), t.missing[0])
	default:
		if err := os.WriteFile(filepath.Join(bed.Root(), document), []byte(t.markdown()), 0o644); err != nil {
			return err
		}
		if err := writeExamples(); err != nil {
			return err
		}
		fmt.Printf("%s and %s are written; run go test ./pkg/diagnose -update, and commit them.\n", document, examples)
	}
	fmt.Print(t.failures())
	fmt.Println(t.sum())
	return errors.Join(failed...)
}

// folder is where a phase leaves its evidence and results.
func folder(phase int) string {
	return filepath.Join(bed.Root(), "bin", "matrix", phases[phase].name)
}

// of returns the results of a name.
func of(results bed.Results, name string) bed.Results {
	return slices.DeleteFunc(slices.Clone(results), func(e bed.Result) bool { return e.Name != name })
}

// run starts the phase's cluster, in place of the one that runs, and the tests of test/e2e there.
func (p phase) run(ctx context.Context, folder, rows string, resume bool) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	cluster := os.Getenv("NODEAGENT_CLUSTER")
	up := []string{"up"}
	for _, n := range p.nodes {
		up = append(up, "--node", n)
	}
	for _, args := range [][]string{{"down"}, up} {
		if err := command(ctx, nil, cluster, args...).Run(); err != nil {
			return fmt.Errorf("cluster %s: %w", args[0], err)
		}
	}
	env := []string{"NODEAGENT_ARTIFACTS=" + folder, "NODEAGENT_ROWS=" + rows}
	if resume {
		env = append(env, "NODEAGENT_RESUME=1")
	}
	test := command(ctx, env, "go", "test", "-count=1", "-timeout", "170m", "-parallel", "1000", "-tags", "e2e,grpcnotrace")
	test.Dir = filepath.Join(bed.Root(), "test", "e2e")
	return test.Run()
}

func command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	// What go test has started ends with it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), env...), os.Stdout, os.Stderr
	return c
}
