package engine

// FileReport is what is in one file of discovery.file_sd.
type FileReport struct {
	Pattern string      // the entry of the configuration
	File    string      // "" where the pattern's directory cannot be read, or nothing matches
	Engines []Config    // none where there is a fault
	Faults  []FileFault // all of them
}

// CheckFiles reads the files of discovery.file_sd once, as a gateway would at
// its start: which engines it would take from them, and which it would leave
// out although they are listed.
func CheckFiles(configured []Config, c DiscoveryConfig, cluster, dir string) (reports []FileReport, found []Config, leftOut []string) {
	d := NewDiscovery(nil, nil, cluster, dir)
	var lists [][]Config
	for _, p := range d.patternsOf(c) {
		paths, err := p.paths()
		if err != nil {
			reports = append(reports, FileReport{Pattern: p.entry, Faults: []FileFault{{File: p.path, Fault: Fault{Want: withoutPath(err).Error()}}}})
			continue
		}
		if len(paths) == 0 {
			reports = append(reports, FileReport{Pattern: p.entry})
		}
		for _, path := range paths {
			r := FileReport{Pattern: p.entry, File: path}
			template := p.template
			template.foundBy = kindFileSD + " " + path
			if text, err := readSD(path); err != nil {
				r.Faults = []FileFault{{File: path, Fault: Fault{Want: err.Error()}}}
			} else {
				r.Engines, r.Faults = parseFileSD(path, text, template)
			}
			reports, lists = append(reports, r), append(lists, r.Engines)
		}
	}
	all, skips := merge(configured, lists)
	for _, s := range skips {
		leftOut = append(leftOut, s.text)
	}
	return reports, all[len(configured):], leftOut
}
