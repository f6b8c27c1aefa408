package v1alpha1

func init() { localSchemeBuilder.Register(RegisterDefaults) }
