package controllers

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Logs reads what a container wrote before it exited.
type Logs interface {
	// Last returns the last lines of the container's last run that ended.
	Last(ctx context.Context, pod *corev1.Pod, container string) (string, error)
}

// Bounds of what is read of a log.
const (
	lastLines = 5
	lastBytes = 1024
)

type podLogs struct{ clientset kubernetes.Interface }

func (l podLogs) Last(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	running := false
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			running = s.State.Terminated == nil
		}
	}
	stream, err := l.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: running, TailLines: new(int64(lastLines)), LimitBytes: new(int64(lastBytes)),
	}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("opening the log of container %s of pod %s: %w", container, pod.Name, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, lastBytes))
	if err != nil {
		return "", fmt.Errorf("reading the log of container %s of pod %s: %w", container, pod.Name, err)
	}
	return strings.Join(strings.Fields(string(text)), " "), nil
}
