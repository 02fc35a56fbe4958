package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// SignalSources are what tells the fate of a stop signal: the processes and their
// masks, the containers and their stop signals, and what the suspects wait in.
var SignalSources = []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects}

// Missing reports whether any of the sources could not be read.
func Missing(p *View, sources ...evidence.Source) bool {
	for _, s := range sources {
		if _, ok := p.Missing[s]; ok {
			return true
		}
	}
	return false
}
