package controllers

import (
	"bytes"
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
	// Contains tells whether the container's last run, which may go on, has written the words near its beginning.
	Contains(ctx context.Context, pod *corev1.Pod, container, words string) (bool, error)
}

// Bounds of what is read of a log.
const (
	lastLines = 5
	lastBytes = 1024
	headBytes = 256 << 10
)

type podLogs struct{ clientset kubernetes.Interface }

func (l podLogs) Last(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	running := false
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			running = s.State.Terminated == nil
		}
	}
	text, err := l.read(ctx, pod, corev1.PodLogOptions{Container: container, Previous: running, TailLines: new(int64(lastLines)), LimitBytes: new(int64(lastBytes))})
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(string(text)), " "), nil
}

func (l podLogs) Contains(ctx context.Context, pod *corev1.Pod, container, words string) (bool, error) {
	text, err := l.read(ctx, pod, corev1.PodLogOptions{Container: container, LimitBytes: new(int64(headBytes))})
	return bytes.Contains(text, []byte(words)), err
}

func (l podLogs) read(ctx context.Context, pod *corev1.Pod, options corev1.PodLogOptions) ([]byte, error) {
	stream, err := l.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the log of container %s of pod %s: %w", options.Container, pod.Name, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, *options.LimitBytes))
	if err != nil {
		return nil, fmt.Errorf("reading the log of container %s of pod %s: %w", options.Container, pod.Name, err)
	}
	return text, nil
}
