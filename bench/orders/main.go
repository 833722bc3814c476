// Prints the order in which FGD's artifact lets pods come, from Go's own generator.
//
// Arguments: capacity in thousandths of GPUs, then seeds. Input: thousandths of GPUs of each pod,
// one a line, sorted by the pods' names. Output: one line a seed, the pods' line numbers from 0.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
)

func main() {
	capacity, _ := strconv.Atoi(os.Args[1])
	most := capacity * 13 / 10
	var pods []int
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		milli, _ := strconv.Atoi(in.Text())
		pods = append(pods, milli)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, text := range os.Args[2:] {
		seed, _ := strconv.ParseInt(text, 10, 64)
		for _, pod := range order(pods, most, rand.New(rand.NewSource(seed))) {
			fmt.Fprint(out, pod, " ")
		}
		fmt.Fprintln(out)
	}
}

// order shuffles, and then adds pods at random, or drops some, until they ask for `most`.
func order(pods []int, most int, random *rand.Rand) []int {
	random.Int()
	chosen := make([]int, len(pods))
	total := 0
	for pod, milli := range pods {
		chosen[pod] = pod
		total += milli
	}
	random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	for total > most {
		at := random.Intn(len(chosen))
		total -= pods[chosen[at]]
		chosen = append(chosen[:at], chosen[at+1:]...)
	}
	for {
		pod := random.Intn(len(pods))
		if total+pods[pod] > most {
			return chosen
		}
		total += pods[pod]
		chosen = append(chosen, pod)
	}
}
