package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Tapes is where the tapes of the runs go, "" when none are recorded: the agent has to be built with the tag tape then.
func Tapes() string { return os.Getenv("NODEAGENT_TAPES") }

// tapesOnNode is where the agent of a node records.
const tapesOnNode = "/var/lib/nodeagent-tapes"

// recording has the DaemonSet's agent record.
var recording = strings.NewReplacer(
	"          env:\n", "          env:\n            - {name: NODEAGENT_TAPES, value: "+tapesOnNode+"}\n",
	"          volumeMounts:\n", "          volumeMounts:\n            - {name: tapes, mountPath: "+tapesOnNode+"}\n",
	"      volumes:\n", "      volumes:\n        - {name: tapes, hostPath: {path: "+tapesOnNode+", type: DirectoryOrCreate}}\n",
)

// beforeTape is how much of the time before the pod is on its tape: the node's last readings, and what the API server
// said of it.
const beforeTape = 30 * time.Second

// window is how far apart what is the same may be on a tape, in bytes.
const window = 8 << 20

// Tape writes what the node's agent was handed of the pod, and of the node meanwhile, into a file of a directory. It takes
// the place of an earlier one.
func (r *Run) Tape(ctx context.Context, dir string) error {
	// The time of a line is the second of its strings. The last line need not be the latest, where the clock is set.
	script := fmt.Sprintf(`cd %s
second() { cut -d'"' -f6 | cut -c1-19; }
from=$(date -u -d "$(second <%[2]s | sort | head -1) - %d seconds" +%%FT%%T)
to=$(second <%[2]s | sort | tail -1)
cat %[2]s
awk -F'"' -v from=$from -v to=$to '{at=substr($6,1,19)} at>=from && at<=to' node`, tapesOnNode, r.Pod.UID, int(beforeTape.Seconds()))
	lines, err := r.Node.Exec(ctx, script)
	if err != nil {
		return fmt.Errorf("the tape of %s: %w", r.Name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Name+".tape"), to.EncodeAll([]byte(lines), nil), 0o644)
}
