package cli

import (
	"errors"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// explained is the text of an error, with what to do where the libraries that made it do not say so.
func explained(err error) string {
	var unanswered *url.Error
	switch {
	case notInstalled(err):
		return err.Error() + "; the operator is not installed in this cluster, or another cluster is meant: --context names it"
	case apierrors.IsUnauthorized(err):
		return err.Error() + "; log in to the cluster again, or name another user of the kubeconfig with --user"
	case apierrors.IsForbidden(err):
		return err.Error() + "; ask whoever administers the namespace: the roles view, edit and admin have the rights to read, to write policies and to write planes"
	case clientcmd.IsContextNotFound(err):
		return err.Error() + "; kubectl config get-contexts lists those there are"
	case errors.As(err, &unanswered):
		return err.Error() + "; the API server does not answer: --context and --kubeconfig name the cluster, kubectl cluster-info tells whether it can be reached"
	}
	text := err.Error()
	if !strings.HasPrefix(text, "unknown command ") {
		return text
	}
	// Cobra offers what is alike on lines of their own.
	text, alike, found := strings.Cut(text, "\n\nDid you mean this?\n")
	if found {
		text += "; did you mean " + strings.Join(strings.Fields(alike), ", ") + "?"
	}
	return text + "; kubectl routing --help lists the commands"
}

// notInstalled tells whether the API server knows nothing of the kind that was asked for, which it says in the same
// way as that there is no such object.
func notInstalled(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
