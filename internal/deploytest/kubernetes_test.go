package deploytest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// object is as much of the Kubernetes objects as the tests look at.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas       int
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	Grace           int            `yaml:"terminationGracePeriodSeconds"`
	SecurityContext map[string]any `yaml:"securityContext"`
	Containers      []container
	Volumes         []struct {
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type container struct {
	Image string
	Args  []string
	Env   []struct {
		Name      string
		ValueFrom struct {
			Secret struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Liveness        probe          `yaml:"livenessProbe"`
	Readiness       probe          `yaml:"readinessProbe"`
	SecurityContext map[string]any `yaml:"securityContext"`
	VolumeMounts    []struct {
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// objects are those of the manifests, by kind.
func objects(t *testing.T) map[string]object {
	t.Helper()
	all := map[string]object{}
	for _, file := range []string{"pgrelay.yaml", "migrate.yaml"} {
		for _, o := range documents[object](t, "deploy/kubernetes/"+file) {
			require.NotContains(t, all, o.Kind)
			all[o.Kind] = o
		}
	}
	return all
}

func TestKubernetesRunsALeaderAndAStandbyThatProbesAndPrometheusReach(t *testing.T) {
	t.Parallel()
	all := objects(t)
	cfg := load(t, "pgrelay.yaml", all["ConfigMap"].Data["pgrelay.yaml"])
	d := all["Deployment"].Spec
	pod := d.Template.Spec
	c := pod.Containers[0]

	require.Equal(t, 2, d.Replicas)
	require.Equal(t, []string{"run"}, c.Args)
	require.Equal(t, "metrics", c.Ports[0].Name)
	requireReachable(t, cfg, c.Ports[0].ContainerPort)
	require.Equal(t, strconv.Itoa(c.Ports[0].ContainerPort), d.Template.Metadata.Annotations["prometheus.io/port"])
	require.Equal(t, probe{HTTPGet: struct{ Path, Port string }{"/healthz", "metrics"}}, c.Liveness)
	require.Equal(t, probe{HTTPGet: struct{ Path, Port string }{"/readyz", "metrics"}}, c.Readiness)
	requireGrace(t, cfg, time.Duration(pod.Grace)*time.Second)

	budget := all["PodDisruptionBudget"].Spec
	require.Equal(t, 1, budget.MaxUnavailable)
	require.Equal(t, d.Selector.MatchLabels, budget.Selector.MatchLabels)
	require.Equal(t, d.Selector.MatchLabels, d.Template.Metadata.Labels)
	require.NotEqual(t, d.Template.Metadata.Labels, all["Job"].Spec.Template.Metadata.Labels, "the job's pod is none of the deployment's")
}

func TestKubernetesPodsMayDoNothingTheyNeedNot(t *testing.T) {
	t.Parallel()
	all := objects(t)
	for _, kind := range []string{"Deployment", "Job"} {
		pod := all[kind].Spec.Template.Spec
		require.Equal(t, true, pod.SecurityContext["runAsNonRoot"], kind)
		require.Equal(t, map[string]any{"type": "RuntimeDefault"}, pod.SecurityContext["seccompProfile"], kind)
		require.Len(t, pod.Containers, 1)
		c := pod.Containers[0]
		require.Equal(t, map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
		}, c.SecurityContext, kind)
		require.Equal(t, "DATABASE_URL", c.Env[0].Name)
		require.Equal(t, struct{ Name, Key string }{"pgrelay", "DATABASE_URL"}, c.Env[0].ValueFrom.Secret, kind)
		require.Equal(t, "/etc/pgrelay", c.VolumeMounts[0].MountPath, "the image's working directory")
		require.Equal(t, all["ConfigMap"].Metadata.Name, pod.Volumes[0].ConfigMap.Name, kind)
	}
	require.Equal(t, all["Deployment"].Spec.Template.Spec.Containers[0].Image, all["Job"].Spec.Template.Spec.Containers[0].Image)
}
