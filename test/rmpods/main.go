// Rmpods removes what containerd has of pods, as "crictl rmp -f" does with what "crictl pods" lists
// by a pod's UID.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const usage = "rmpods UID...  removes the sandboxes of pods, and their containers, from the containerd of this node"

// limit is how long each pod may take.
const limit = time.Minute

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := remove(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func remove(ctx context.Context, uids []string) error {
	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	client := runtimeapi.NewRuntimeServiceClient(conn)
	for _, uid := range uids {
		if err := removeOne(ctx, client, uid); err != nil {
			return fmt.Errorf("pod with UID %s: %w", uid, err)
		}
	}
	return nil
}

func removeOne(ctx context.Context, client runtimeapi.RuntimeServiceClient, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}},
	})
	if err != nil {
		return err
	}
	for _, s := range list.GetItems() {
		if _, err := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return err
		}
		if _, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return err
		}
	}
	return nil
}
