package diagnose
import "github.com/nodeagent-io/nodeagent/pkg/evidence"
func unknown(p *evidence.Pod, d Diagnosis, ruledOut []string) Finding { return Finding{Cause: "Unknown"} }
