package fakeaws

// Operations returns the names of the operations that the server has, by service.
func Operations() map[string][]string {
	all := map[string][]string{}
	for _, service := range queryServices {
		for name := range service.operations {
			all[service.name] = append(all[service.name], name)
		}
	}
	for _, route := range eksRoutes {
		all[serviceEKS] = append(all[serviceEKS], route.name)
	}
	return all
}
