package v1beta2

func init() { localSchemeBuilder.Register(RegisterDefaults) }
