package embedded

// OnBoot are options as if the machine were in a run with this ID.
func OnBoot(id string) Options { return Options{boot: id} }

// DataFile is the name of the file in the directory of an engine.
const DataFile = dataFile
