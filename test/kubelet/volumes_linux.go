package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// prepare creates the root directory and the volumes of the container. refresh updates the volumes whose
// sources have changed.
func (p *pod) prepare(ctx context.Context) (_ *sandbox, refresh func(context.Context) error, err error) {
	container := &p.object.Spec.Containers[0]
	image, ok := p.kubelet.Images[container.Image]
	if !ok {
		return nil, nil, fmt.Errorf("image %s is unknown", container.Image)
	}
	root := filepath.Join(p.dir(), "root")
	if err := os.RemoveAll(p.dir()); err != nil {
		return nil, nil, err
	}
	names := append([]string{"localhost"}, p.kubelet.Names...)
	if err := write(root, map[string][]byte{"etc/hosts": []byte("127.0.0.1 " + strings.Join(names, " ") + "\n")}, 0o644); err != nil {
		return nil, nil, err
	}
	// The program is mounted over an empty file.
	if err := write(root, map[string][]byte{image.Path: nil}, 0o755); err != nil {
		return nil, nil, err
	}
	s := &sandbox{Root: root, Command: slices.Concat(container.Command, container.Args), Mounts: []mount{{image.Program, image.Path, true}}}
	p.identity(s)
	if s.Env, err = p.environment(s); err != nil {
		return nil, nil, err
	}
	refresh = func(ctx context.Context) error {
		var errs []error
		for _, volume := range p.object.Spec.Volumes {
			errs = append(errs, p.fill(ctx, &volume, s))
		}
		return errors.Join(errs...)
	}
	if err := refresh(ctx); err != nil {
		return nil, nil, err
	}
	for _, m := range container.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" || m.MountPropagation != nil {
			return nil, nil, fmt.Errorf("test/kubelet supports only mounts of whole volumes, not %s", m.Name)
		}
		if err := os.MkdirAll(filepath.Join(root, m.MountPath), 0o755); err != nil {
			return nil, nil, err
		}
		s.Mounts = append(s.Mounts, mount{p.source(m.Name), m.MountPath, m.ReadOnly})
	}
	return s, refresh, nil
}

// identity sets the user of the container and its groups.
func (p *pod) identity(s *sandbox) {
	container := p.object.Spec.Containers[0].SecurityContext
	whole := ptr.Deref(p.object.Spec.SecurityContext, corev1.PodSecurityContext{})
	user := ptr.Deref(whole.RunAsUser, 0)
	group := ptr.Deref(whole.RunAsGroup, 0)
	if container != nil {
		user, group = ptr.Deref(container.RunAsUser, user), ptr.Deref(container.RunAsGroup, group)
		s.ReadOnly = ptr.Deref(container.ReadOnlyRootFilesystem, false)
	}
	s.UID, s.GID = uint32(user), uint32(group)
	if whole.FSGroup != nil {
		s.Groups = []uint32{uint32(*whole.FSGroup)}
	}
}

// reference matches a reference to a variable, or an escaped one.
var reference = regexp.MustCompile(`\$?\$\(([-._A-Za-z][-._A-Za-z0-9]*)\)`)

// environment returns the variables of the container, and expands them in its command.
func (p *pod) environment(s *sandbox) ([]string, error) {
	container := &p.object.Spec.Containers[0]
	values := map[string]string{}
	expand := func(text string) string {
		return reference.ReplaceAllStringFunc(text, func(found string) string {
			if strings.HasPrefix(found, "$$") {
				return found[1:]
			}
			if value, ok := values[found[2:len(found)-1]]; ok {
				return value
			}
			return found
		})
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.kubelet.config.Host, "https://"))
	if err != nil {
		return nil, err
	}
	values["KUBERNETES_SERVICE_HOST"], values["KUBERNETES_SERVICE_PORT"], values["HOSTNAME"] = host, port, p.object.Name
	for _, variable := range container.Env {
		value := expand(variable.Value)
		if source := variable.ValueFrom; source != nil {
			if value, err = p.valueOf(source); err != nil {
				return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		values[variable.Name] = value
	}
	for i := range s.Command {
		s.Command[i] = expand(s.Command[i])
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return env, nil
}

func (p *pod) valueOf(source *corev1.EnvVarSource) (string, error) {
	if field := source.FieldRef; field != nil {
		value, ok := map[string]string{"metadata.name": p.object.Name, "metadata.namespace": p.object.Namespace}[field.FieldPath]
		if !ok {
			return "", fmt.Errorf("test/kubelet does not support the field %s", field.FieldPath)
		}
		return value, nil
	}
	if field := source.ResourceFieldRef; field != nil && field.Resource == "limits.memory" && !field.Divisor.IsZero() {
		limit, divisor := p.object.Spec.Containers[0].Resources.Limits.Memory().Value(), field.Divisor.Value()
		return strconv.FormatInt((limit+divisor-1)/divisor, 10), nil
	}
	return "", errors.New("test/kubelet supports only fieldRef, and resourceFieldRef of limits.memory with a divisor")
}

// source returns the directory of a volume. The one of a claim stays when the Pod ends.
func (p *pod) source(name string) string {
	for _, volume := range p.object.Spec.Volumes {
		if volume.Name == name && volume.PersistentVolumeClaim != nil {
			return filepath.Join(p.kubelet.Dir, "claims", p.object.Namespace, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return filepath.Join(p.dir(), "volumes", name)
}

// fill creates a volume, or updates its files.
func (p *pod) fill(ctx context.Context, volume *corev1.Volume, s *sandbox) error {
	dir, client := p.source(volume.Name), p.kubelet.client.CoreV1()
	files := map[string][]byte{}
	mode := int32(0o644)
	switch source := volume.VolumeSource; {
	case source.PersistentVolumeClaim != nil:
		claims := client.PersistentVolumeClaims(p.object.Namespace)
		claim, err := claims.Get(ctx, source.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Phase != corev1.ClaimBound {
			claim.Status.Phase = corev1.ClaimBound
			if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return p.writable(dir, s)
	case source.EmptyDir != nil:
		return p.writable(dir, s)
	case source.Secret != nil:
		mode = ptr.Deref(source.Secret.DefaultMode, mode)
		secret, err := client.Secrets(p.object.Namespace).Get(ctx, source.Secret.SecretName, metav1.GetOptions{})
		if err != nil && (!apierrors.IsNotFound(err) || !ptr.Deref(source.Secret.Optional, false)) {
			return err
		}
		if len(source.Secret.Items) > 0 {
			return errors.New("test/kubelet does not support items of Secrets")
		}
		if err == nil {
			maps.Copy(files, secret.Data)
		}
	case source.ConfigMap != nil && len(source.ConfigMap.Items) == 0:
		mode = ptr.Deref(source.ConfigMap.DefaultMode, mode)
		object, err := client.ConfigMaps(p.object.Namespace).Get(ctx, source.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for key, value := range object.Data {
			files[key] = []byte(value)
		}
	case source.Projected != nil:
		mode = ptr.Deref(source.Projected.DefaultMode, mode)
		for _, part := range source.Projected.Sources {
			if err := p.project(ctx, &part, dir, files); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("test/kubelet does not support the kind of volume %s", volume.Name)
	}
	if len(s.Groups) > 0 {
		mode |= 0o440
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return write(dir, files, os.FileMode(mode))
}

// writable creates a directory that the container may write: that of an emptyDir for all users,
// that of a claim for fsGroup.
func (p *pod) writable(dir string, s *sandbox) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if len(s.Groups) == 0 {
		if strings.Contains(dir, "/claims/") {
			return nil
		}
		return os.Chmod(dir, 0o777)
	}
	return errors.Join(os.Chown(dir, 0, int(s.Groups[0])), os.Chmod(dir, 0o770|os.ModeSetgid))
}

// project adds the files of one source of a projected volume.
func (p *pod) project(ctx context.Context, part *corev1.VolumeProjection, dir string, files map[string][]byte) error {
	client := p.kubelet.client.CoreV1()
	switch {
	case part.ServiceAccountToken != nil:
		path := part.ServiceAccountToken.Path
		if content, err := os.ReadFile(filepath.Join(dir, path)); err == nil {
			files[path] = content
			return nil
		}
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: part.ServiceAccountToken.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.object.Name, UID: p.object.UID},
		}}
		if part.ServiceAccountToken.Audience != "" {
			request.Spec.Audiences = []string{part.ServiceAccountToken.Audience}
		}
		token, err := client.ServiceAccounts(p.object.Namespace).CreateToken(ctx, p.object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		files[path] = []byte(token.Status.Token)
	case part.ConfigMap != nil:
		object, err := client.ConfigMaps(p.object.Namespace).Get(ctx, part.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, item := range part.ConfigMap.Items {
			files[item.Path] = []byte(object.Data[item.Key])
		}
	case part.DownwardAPI != nil:
		for _, item := range part.DownwardAPI.Items {
			value, err := p.valueOf(&corev1.EnvVarSource{FieldRef: item.FieldRef})
			if err != nil {
				return err
			}
			files[item.Path] = []byte(value)
		}
	default:
		return errors.New("test/kubelet does not support this source of a projected volume")
	}
	return nil
}

// write writes files whose content differs, each at once.
func write(dir string, files map[string][]byte, mode os.FileMode) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, content) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		next := path + ".next"
		if err := os.WriteFile(next, content, mode); err != nil {
			return err
		}
		if err := errors.Join(os.Chmod(next, mode), os.Rename(next, path)); err != nil {
			return err
		}
	}
	return nil
}
