package inventory

import (
	"fmt"
	"slices"
	"strings"
)

const rolePrefix = "node-role.kubernetes.io/"

func nodeRoles(c content) any {
	labels, _ := c.at([]string{"metadata", "labels"}).(map[string]any)
	var roles []string
	for key, value := range labels {
		if role, ok := strings.CutPrefix(key, rolePrefix); ok && role != "" {
			roles = append(roles, role)
		} else if role, _ := value.(string); key == "kubernetes.io/role" && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func nodeStatus(c content) any {
	status := "Unknown"
	switch conditions(c)["Ready"] {
	case "True":
		status = "Ready"
	case "False", "Unknown":
		status = "NotReady"
	}
	if cordoned, _ := c.at([]string{"spec", "unschedulable"}).(bool); cordoned {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeAddress(c content) any {
	var found string
	c.each([]string{"status", "addresses"}, func(address content) {
		if address.text("type") == "InternalIP" && found == "" {
			found = address.text("address")
		}
	})
	return found
}

// servicePorts returns the ports as kubectl shows them: "80/TCP", or "80:30080/TCP" with a
// node port.
func servicePorts(c content) any {
	var ports []string
	c.each([]string{"spec", "ports"}, func(port content) {
		text := fmt.Sprint(port.at([]string{"port"}))
		if onNode, ok := port.at([]string{"nodePort"}).(int64); ok && onNode != 0 {
			text += fmt.Sprintf(":%d", onNode)
		}
		ports = append(ports, text+"/"+port.text("protocol"))
	})
	return ports
}

func serviceAddresses(c content) any {
	found, _ := list("spec.externalIPs")(c).([]string)
	return append(found, balancerAddresses(c)...)
}

func ingressAddresses(c content) any { return balancerAddresses(c) }

func balancerAddresses(c content) []string {
	var found []string
	c.each([]string{"status", "loadBalancer", "ingress"}, func(ingress content) {
		for _, field := range []string{"ip", "hostname"} {
			if address := ingress.text(field); address != "" {
				found = append(found, address)
			}
		}
	})
	return found
}

// claimReferences adds the reference from a claim to its volume. The volume refers to the claim as
// well, but edges are followed in both directions, so one edge is enough.
func claimReferences(c content, found *references) {
	found.add(boundTo, volume, "", c.text("spec", "volumeName"))
}

func volumeClaim(c content) any {
	name := c.text("spec", "claimRef", "name")
	if name == "" {
		return nil
	}
	return c.text("spec", "claimRef", "namespace") + "/" + name
}

// volumeSources maps the fields in the spec of a PersistentVolume that contain its source.
var volumeSources = map[string]string{
	"awsElasticBlockStore": "AWSElasticBlockStore", "azureDisk": "AzureDisk", "azureFile": "AzureFile", "cephfs": "CephFS",
	"cinder": "Cinder", "csi": "CSI", "fc": "FC", "flexVolume": "FlexVolume", "gcePersistentDisk": "GCEPersistentDisk",
	"glusterfs": "Glusterfs", "hostPath": "HostPath", "iscsi": "ISCSI", "local": "Local", "nfs": "NFS",
	"photonPersistentDisk": "PhotonPersistentDisk", "portworxVolume": "PortworxVolume", "quobyte": "Quobyte", "rbd": "RBD",
	"scaleIO": "ScaleIO", "storageos": "StorageOS", "vsphereVolume": "VsphereVolume",
}

func volumeType(c content) any {
	spec, _ := c.at([]string{"spec"}).(map[string]any)
	for field := range spec {
		if name, ok := volumeSources[field]; ok {
			return name
		}
	}
	return nil
}

func jobStatus(c content) any {
	status := conditions(c)
	for _, kind := range []string{"Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"} {
		if status[kind] == "True" {
			return kind
		}
	}
	if c.text("metadata", "deletionTimestamp") != "" {
		return "Terminating"
	}
	return "Running"
}

func scaleTarget(c content) any {
	name := c.text("spec", "scaleTargetRef", "name")
	if name == "" {
		return nil
	}
	return c.text("spec", "scaleTargetRef", "kind") + "/" + name
}
