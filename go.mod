module github.com/nodeagent-io/nodeagent

go 1.26
