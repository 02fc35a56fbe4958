module github.com/nodeagent-io/nodeagent/deploy/grafana

go 1.27.4

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
