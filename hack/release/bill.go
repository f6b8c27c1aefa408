package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// bill returns the bill of materials of a program in CycloneDX JSON: the modules that Go recorded in it, with their
// checksums.
func (r *release) bill(p *program) ([]byte, error) {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return nil, fmt.Errorf("reading the modules of %s: %w", p.path, err)
	}
	root := &cyclonedx.Component{
		BOMRef: "pkg:golang/" + info.Main.Path + "@" + r.version, Type: cyclonedx.ComponentTypeApplication,
		Name: p.name, Version: r.version, PackageURL: "pkg:golang/" + info.Main.Path + "@" + r.version,
	}
	components := []cyclonedx.Component{{
		BOMRef: "pkg:golang/std@" + info.GoVersion, Type: cyclonedx.ComponentTypeLibrary,
		Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	depends := []string{components[0].BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		url := "pkg:golang/" + module.Path + "@" + module.Version
		components = append(components, cyclonedx.Component{
			BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: url,
			Properties: &[]cyclonedx.Property{{Name: "go:sum", Value: module.Sum}},
		})
		depends = append(depends, url)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: root}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: root.BOMRef, Dependencies: &depends}}
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	if err := encoder.SetPretty(true).Encode(bom); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
